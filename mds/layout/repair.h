/*
 * repair.h - objects that are not in sync are made so again (docs/repair.md): what is durable of
 * that, where an object is made again, and the data servers' steps. What becomes of the file's
 * layouts meanwhile, and which file's turn it is, is mds/jobs/repair.c's.
 */
#ifndef MDS_LO_REPAIR_H
#define MDS_LO_REPAIR_H
#include "mds/layout/lo.h"

/*
 * The table: a row NS_T_REPAIR for each file that has an object which is not in sync, put by the
 * transaction that made it so; its key is the inode's number. So nothing needs to be told to who
 * repairs, and nothing is forgotten.
 */
enum lo_repair_why {
	LO_REPAIR_FINE,
	LO_REPAIR_BUSY,
	LO_REPAIR_NO_SOURCE,
	LO_REPAIR_NO_ANSWER,
	LO_REPAIR_TARGET,
	LO_REPAIR_FULL,
	LO_REPAIR_CHANGED,
	LO_REPAIR_LOST,
	LO_REPAIR_WHYS
};
const char *lo_repair_why_text(enum lo_repair_why why);
struct lo_repair {
	uint64_t rr_session; /* of the rebuild under way, or 0 */
	/* how far it is; known to be so for as long as the target has that session */
	uint64_t rr_done;
	uint64_t rr_after; /* seconds of CLOCK_REALTIME: it failed, and is not tried before */
	uint32_t rr_bad;   /* server that failed as a target of rr_object last, or 0 */
	uint8_t rr_object; /* the one being rebuilt, or that failed last: its index in the map */
	uint8_t rr_fails;  /* in a row */
	uint8_t rr_why;	   /* enum lo_repair_why: of the last */
	bool rr_now;	   /* the administrator asked: no server is waited for */
};
int lo_repair_get(struct kv_txn *t, uint64_t ino, struct lo_repair *rr);       /* -ENOENT, -EIO */
int lo_repair_put(struct kv_txn *t, uint64_t ino, const struct lo_repair *rr); /* W */
int lo_repair_del(struct kv_txn *t, uint64_t ino);			       /* W */
/* W: there is a row from now on, when the map is not whole. */
int lo_repair_note(struct kv_txn *t, uint64_t ino, const struct lo_map *m);
/* W: it failed once more: when is it tried again? */
void lo_repair_failed(struct lo_repair *rr, enum lo_repair_why why, uint64_t now_s);
/* Seconds until it is tried again; 0: now. A clock that was put back makes it wait no longer than a
 * failure does. */
uint64_t lo_repair_waits(const struct lo_repair *rr, uint64_t now_s);
/* The row is about this object from now on: which server fails is another's story. */
void lo_repair_of(struct lo_repair *rr, unsigned obj);
/* With which object the look for one begins: one that fails does not keep the file's others from
 * being repaired. */
unsigned lo_repair_first(const struct lo_repair *rr);
/* Rows from an inode on; fn returns 0 to go on. */
int lo_repairs(struct kv_txn *t, uint64_t from,
	       int (*fn)(void *arg, uint64_t ino, const struct lo_repair *rr), void *arg);
/* A row's bytes, for the checker: 0 or -EIO. */
int lo_repair_decode(struct kv_slice id, struct kv_slice val, uint64_t *ino, struct lo_repair *rr);

/* Clients with write layouts were lost, and not all of those files' copies have been judged
 * (docs/mirrors.md): a row of its own, inode 0. */
int lo_lost_put(struct kv_txn *t); /* W */
int lo_lost_del(struct kv_txn *t); /* W */
bool lo_lost_get(struct kv_txn *t);

/* Where an object that is not in sync can be made again. */
enum lo_where {
	LO_IN_PLACE,
	LO_ELSEWHERE,
	LO_WAIT_SERVER,
	LO_WAIT_SPACE,
	LO_WAIT_SOURCE,
	LO_WAIT_LEASE
};
/* *ds: on which server; or, WAIT_SERVER, whose return is waited for, for *left_ms more. */
enum lo_where lo_repair_where(struct lo *lo, const struct lo_map *m, unsigned obj,
			      const struct lo_repair *rr, uint32_t wait_ms, uint32_t *ds,
			      uint64_t *left_ms);
/* A fence of the file would wait for the lease of a server that is away, and all clients with it.
 * For stale objects it does not wait. */
bool lo_fence_hangs(struct lo *lo, const struct lo_map *m);
/* The r-th copy that the object can be made from, living ones only; -1. */
int lo_repair_source(struct lo *lo, const struct lo_map *m, unsigned obj, unsigned r);

/* One step (proto/ctl.x, ctl_rebuild_args) on the object's server. done is called once, on the
 * calling loop, never from inside the call: 0; -ESTALE: the server does not know the session;
 * -EREMOTEIO: the source failed; -EACCES: the map's epoch is too old; -ENOSPC, -EIO: the target
 * fails; -ETIMEDOUT: it was not reached. */
struct lo_rebuild {
	uint64_t rb_ino;
	uint16_t rb_incarnation;
	struct lo_map rb_map;
	unsigned rb_obj, rb_source; /* indexes in the map; source: PULL's */
	int rb_step;		    /* ctl_rebuild_step */
	uint64_t rb_session, rb_off, rb_len;
	ctl_rebuild_res rb_res;
	void (*rb_done)(struct lo_rebuild *rb, int err);
	/* lo's own */
	struct dsc_ctl rb_ctl;
	ctl_status rb_status;
	ctl_addr rb_addrs[DSC_ADDRS];
	char rb_key[2 * CAP_TLS_KEY_LEN + 1];
	struct dsc_server rb_peer;
	struct dsc_handle rb_foreign;
};
void lo_rebuild(struct lo *lo, struct lo_rebuild *rb);
#endif
