/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair_row.h - repair makes objects in sync again (docs/repair.md). Here: its durable rows, the
 * place where an object is made again, and the data servers' steps. mds/jobs/repair.c decides what
 * happens to the file's layouts meanwhile, and mds/jobs/repair_queue.c which file is next.
 */
#ifndef MDS_LO_REPAIR_H
#define MDS_LO_REPAIR_H
#include "mds/layout/lo.h"

/*
 * The table: a row NS_T_REPAIR, keyed by inode number, for each file that has an object which is
 * not in sync. The transaction that made the object so puts the row. So no message to the repair
 * job is needed, and none can be lost.
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
/* What the administrator asked for last. These numbers are stored. */
enum lo_repair_asked {
	LO_REPAIR_ASKED_NONE,
	LO_REPAIR_ASKED_MOVE,
	LO_REPAIR_ASKED_ADD,
	LO_REPAIR_ASKED_REMOVE,
	LO_REPAIR_ASKS
};
struct lo_repair {
	uint64_t rr_session; /* of the rebuild under way, or 0 */
	/* Bytes that are done, valid as long as the target has that session. */
	uint64_t rr_done;
	uint64_t rr_after; /* it failed, and is not tried before then; s of CLOCK_REALTIME */
	uint32_t rr_bad;   /* server that last failed as a target of rr_object, or 0 */
	/* the object being rebuilt, or that failed last: its index in the map */
	uint8_t rr_object;
	uint8_t rr_fails; /* failures in a row */
	uint8_t rr_why;	  /* enum lo_repair_why, of the last */
	bool rr_now;	  /* the administrator asked: waits for no server */
	/* The next four are what mds/jobs/job.h shows of the row. rr_number: tells this row from
	 * earlier and later ones of the file. lo_repair_put keeps all four where rr_number is 0. */
	bool rr_cancelled; /* the administrator cancelled what rr_asked says */
	uint8_t rr_asked;  /* enum lo_repair_asked */
	uint8_t rr_number;
	uint32_t rr_begun_s; /* when the row came into being; s of CLOCK_REALTIME; 0: unknown */
};
int lo_repair_get(struct kv_txn *t, uint64_t ino, struct lo_repair *rr); /* -ENOENT, -EIO */
/* W. A row with rr_number 0 goes on with the row that is there, or is a new one. */
int lo_repair_put(struct kv_txn *t, uint64_t ino, const struct lo_repair *rr);
int lo_repair_del(struct kv_txn *t, uint64_t ino); /* W */
/* W: makes sure that there is a row, if the map is not whole. */
int lo_repair_note(struct kv_txn *t, uint64_t ino, const struct lo_map *m);
/* W: notes one more failure, and when to try again. */
void lo_repair_failed(struct lo_repair *rr, enum lo_repair_why why, uint64_t now_s);
/* Returns the seconds until it is tried again; 0: now. If the clock was set back, it waits no
 * longer than after a failure. */
uint64_t lo_repair_waits(const struct lo_repair *rr, uint64_t now_s);
/* Makes the row one about this object. rr_bad goes if the row was about another. */
void lo_repair_of(struct lo_repair *rr, unsigned obj);
/* Returns the object at which to begin: one that fails does not keep the file's others from being
 * repaired. */
unsigned lo_repair_first(const struct lo_repair *rr);
/* Calls fn for the rows from an inode on; fn returns 0 to go on. */
int lo_repairs(struct kv_txn *t, uint64_t from,
	       int (*fn)(void *arg, uint64_t ino, const struct lo_repair *rr), void *arg);
/* Decodes a row, for the checker: 0 or -EIO. */
int lo_repair_decode(struct kv_slice id, struct kv_slice val, uint64_t *ino, struct lo_repair *rr);

/* Clients with write layouts were lost, and not all copies of their files have been judged
 * (docs/mirrors.md): one row, inode 0. */
int lo_lost_writers_put(struct kv_txn *t); /* W */
int lo_lost_writers_del(struct kv_txn *t); /* W */
bool lo_lost_writers_get(struct kv_txn *t);

/* Where an object that is not in sync can be made again. */
enum lo_where {
	LO_IN_PLACE,
	LO_ELSEWHERE,
	LO_WAIT_SERVER,
	LO_WAIT_SPACE,
	LO_WAIT_SOURCE,
	LO_WAIT_LEASE
};
/* *ds: the server; for WAIT_SERVER the server whose return the repair waits for, for *left_ms more.
 * wait_ms: how long it waits for a server that is away. */
enum lo_where lo_repair_where(struct lo *lo, const struct lo_map *m, unsigned obj,
			      const struct lo_repair *rr, uint32_t wait_ms, uint32_t *ds,
			      uint64_t *left_ms);
/* Would a fence of the file wait for the lease of a server that is away, and all clients with it?
 * It does not wait for stale objects. */
bool lo_fence_hangs(struct lo *lo, const struct lo_map *m);
/* Returns the r-th copy from which the object can be made, of those whose servers live; or -1. */
int lo_repair_source(struct lo *lo, const struct lo_map *m, unsigned obj, unsigned r);

/* Runs one step (proto/ctl.x, ctl_rebuild_args) on the object's server. rb_done is called once, on
 * the calling loop, never from inside the call. 0; -ESTALE: the server does not know the session;
 * -EREMOTEIO: the source failed; -EACCES: the map's epoch is too old; -ENOSPC, -EIO: the target
 * fails; -ETIMEDOUT: it could not be reached; -ENOLINK: a change of the target, an NFSv3 server,
 * got no answer, and the session waits for a BEGIN after a fence. */
struct lo_rebuild {
	uint64_t rb_ino;
	uint16_t rb_incarnation;
	struct lo_map rb_map;
	unsigned rb_obj, rb_source; /* indexes in the map; rb_source: for PULL */
	int rb_step;		    /* ctl_rebuild_step */
	uint64_t rb_session, rb_off, rb_len;
	ctl_rebuild_res rb_res;
	void (*rb_done)(struct lo_rebuild *rb, int err);
	/* for lo only */
	struct ds_reg_ctl rb_ctl;
	ctl_status rb_status;
	ctl_addr rb_addrs[DS_REG_ADDRS];
	char rb_key[2 * CAP_TLS_KEY_LEN + 1];
	struct ds_reg_server rb_peer;
	struct ds_reg_handle rb_foreign;
};
void lo_rebuild(struct lo *lo, struct lo_rebuild *rb);
#endif
