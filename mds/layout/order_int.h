/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_int.h - orders: what is durable, and its image in memory.
 *
 * Durable: a row for each order, NS_T_ORDER, id = server (be32) and number (be64). Numbers rise in
 * commit order. So of each server's rows those that a snapshot shows beyond the last number seen
 * are exactly the new ones.
 *
 * Memory, all on one loop (the first): for each server a queue; for each inode its orders that are
 * not done, and the requests that wait for them. A kick or a wait fills it by a scan of a snapshot
 * from the last number seen: both come after the commit of the orders that they are about. Deletes
 * of files that are gone are kicked LATER_MS after the first of them: no request waits for them,
 * and they share one message and one sync of the data server. Nothing is taken from the mutation
 * itself, which may yet be aborted.
 *
 * Running: two lanes for each server, with one batch at a time in each. One has the fences and
 * bars, which wait for nothing. The other has the rest, deletes last; there an order goes only when
 * no older order of its object is undone. So the orders of one object run in order, and a failed
 * one holds back its successors only. A fence that overtakes an older order of its object has
 * number 0: the server raises the epoch, and counts no order as done. A server with a protocol
 * before 5 would count it as done, so nothing overtakes there. A truncate that has no answer for
 * AHEAD_MS is overtaken by a fence with its epoch. When the server has confirmed an order, the
 * requests that wait for it go on. Its row is deleted later, in one mutation for all orders that
 * are done by then. A row that survives a crash is sent again, and the server knows its number.
 */
#ifndef MDS_LO_ORDER_INT_H
#define MDS_LO_ORDER_INT_H
#include "mds/layout/lo_int.h"

#define ORDER_KEY_LEN 12

/* The requests that put the last rows, so that their orders' events carry their ids: the committer
 * writes an entry, the orders' loop reads it. */
#define ORDER_ORIGINS 1024 /* a power of two */
struct order_origin {
	_Atomic uint64_t oo_number, oo_request;
};

struct order_file;
struct order {
	uint64_t or_number, or_size;
	uint64_t or_request; /* that put the row (common/trace.h); 0: none, or not known any more */
	uint64_t or_src, or_from, or_offset; /* CLONE */
	uint16_t or_src_incarnation;
	uint8_t or_src_mirror, or_src_known;
	uint32_t or_ds, or_epoch, or_client, or_fs;
	uint16_t or_incarnation;
	uint8_t or_type, or_stripe, or_mirror;
	bool or_known;	      /* its object is known to exist */
	bool or_logged;	      /* its failure is in the log */
	uint64_t or_after_ms; /* it failed: not before this time */
	/* When it was read, or (for a fence ahead of it) last tried. */
	uint64_t or_since_ms;
	/* A weft data server has answered the raise of its epoch: either it is confirmed, or the
	 * server could not store it and refuses older capabilities from memory. */
	bool or_in_force;
	/* For who looks from another thread: how often it was sent; and what came of it last: a
	 * ctl_status, or -errno where there was no answer; 0: nothing yet. */
	_Atomic uint32_t or_tries;
	_Atomic int32_t or_error;
	bool or_ahead; /* a fence with its epoch is in the batch of the other lane */
	struct order *or_next, **or_prevp;	     /* of the queue, by number */
	struct order *or_file_next, **or_file_prevp; /* of the inode */
	struct order_file *or_file;
};

/* order_row.c: the request that put the row of this number, or 0. */
struct lo_orders;
uint64_t lo_order_origin(struct lo_orders *os, uint64_t number);

/* Decodes a row's value into malloc'd memory. NULL: it is damaged, or no memory. */
struct order *lo_order_decode(uint32_t ds, uint64_t number, struct kv_slice val, uint64_t *ino);

/* An inode with orders, or with requests that wait for some. */
struct order_file {
	struct hash_link of_link;
	uint64_t of_ino;
	struct order *of_orders;
	struct order_wait *of_waits;
	/* Some of its orders are done, so its waits must be looked at; only while there are
	 * waits. */
	bool of_due;
	struct order_file *of_due_next;
};

struct order_wait {
	struct loop_msg ow_msg;
	struct lo_orders *ow_orders;
	uint64_t ow_ino, ow_deadline_ms, ow_high;
	uint32_t ow_timeout_ms;
	struct lo_map ow_map; /* no stripes: every order counts */
	struct loop *ow_loop;
	void (*ow_done)(void *arg, int err);
	void *ow_arg;
	int ow_err;
	struct order_file *ow_file;
	struct order_wait *ow_next, **ow_prevp;		/* of the inode */
	struct order_wait *ow_all_next, **ow_all_prevp; /* of all */
};

enum { ORDER_FENCE, ORDER_URGENT, ORDER_DELETE, ORDER_LISTS };
enum { QUEUE_FENCES, QUEUE_REST, QUEUES };
/* A batch on its way. */
struct order_batch {
	struct order_queue *ol_queue;
	struct ds_reg_ctl ol_ctl;
	bool ol_busy, ol_again;
	unsigned ol_n;
	/* When its last batch was answered, or when the server joined after that; 0: neither. */
	uint64_t ol_answered_ms;
	struct order *ol_batch[CTL_BATCH_MAX]; /* NULL: done in the other lane */
	ctl_order ol_wire[CTL_BATCH_MAX];
	ctl_status ol_status, ol_result[CTL_BATCH_MAX];
};
struct order_queue {
	struct lo_orders *oq_orders;
	uint32_t oq_ds;
	struct order *oq_list[ORDER_LISTS], **oq_tail[ORDER_LISTS];
	bool oq_up;
	struct loop_timer oq_retry;
	/* a join that waits for the urgent ones */
	void (*oq_ready)(void *rarg);
	void *oq_rarg;
	struct order_batch oq_lane[QUEUES];
};

struct order_key {
	uint8_t ork_k[ORDER_KEY_LEN];
};

struct lo_orders {
	struct lo *os_lo;
	struct loop *os_loop;
	struct order_queue *os_queue[DS_REG_MAX + 1];
	/* the highest number that a mutation put, committed or not */
	_Atomic uint64_t os_put[DS_REG_MAX + 1];
	struct order_origin os_origin[ORDER_ORIGINS]; /* by number */
	uint64_t os_seen[DS_REG_MAX + 1];	      /* the highest number read from the store */
	/* Refreshes: how many began, and the last one that read everything. */
	_Atomic uint64_t os_begun, os_ended;
	bool os_loaded;
	uint64_t os_high;	 /* the highest number seen of any server */
	pthread_mutex_t os_lock; /* guards os_files: the loop changes it, any thread may ask */
	struct hash os_files;
	_Atomic uint64_t os_count;
	_Atomic uint32_t os_failing[DS_REG_MAX + 1]; /* orders that the server could not run */
	/* since when there have been some */
	_Atomic uint64_t os_failing_ms[DS_REG_MAX + 1];
	/* Since when a fence or bar has had no answer, and neither has the fences' lane; 0: there
	 * is none. */
	_Atomic uint64_t os_owed_ms[DS_REG_MAX + 1];
	/* since when the oldest order has been here, as lo_orders_look saw it; 0: there is none */
	_Atomic uint64_t os_oldest_ms[DS_REG_MAX + 1];
	unsigned os_nclones;
	struct loop_msg os_kick;
	_Atomic bool os_kicked;
	/* Files that are gone, and whose orders were not read yet: they wait for each other. */
	/* os_looking: those of them whose orders are being read now */
	_Atomic uint64_t os_gone, os_looking;
	struct loop_msg os_later;
	_Atomic bool os_latered;
	struct loop_timer os_later_timer;
	struct order_wait *os_waits;
	struct order_file *os_due;
	struct loop_timer os_tick;
	/* rows to delete */
	struct order_key *os_dead, *os_deleting;
	size_t os_ndead, os_dead_cap, os_ndeleting;
	struct loop_timer os_del_timer;
	struct kv_op os_del;
};

/* order_view.c: a walk over the orders of all inodes, in steps: the loop that changes the table
 * needs os_lock for each order. Every order that is there all the time is met once; the table may
 * grow between two steps. */
#define ORDER_STEP 1024u /* slots and orders that a step looks at, and the rest of a slot's */
struct order_walk {
	uint32_t wk_size, wk_at; /* slots when it began, and the next of them */
	void (*wk_fn)(void *arg, const struct order *o);
	void *wk_arg;
};
/* The caller holds os_lock. False: that was the last step. */
bool lo_order_walk(struct lo_orders *os, struct order_walk *w);
/* order_row.c */
void lo_order_key(struct order_key *key, uint32_t ds, uint64_t number);
/* Returns the data server, and *number; 0: not an order's key. */
uint32_t lo_order_key_read(struct kv_slice id, uint64_t *number);
/* order.c, used by order_run.c */
struct order_queue *lo_order_queue(struct lo_orders *os, uint32_t ds);
void lo_orders_refresh(struct lo_orders *os);
/* The order is confirmed: forgets it, and puts its row among those to delete. */
void lo_order_finish(struct lo_orders *os, struct order *o);
/* Call it once after some lo_order_finish: wakes the waits, and deletes the rows soon. */
void lo_order_finished(struct lo_orders *os);
/* Deletes the rows of orders that are done, soon. */
void lo_orders_delete(struct lo_orders *os);
/* order_run.c */
/* Does the order take a right away from a client, and has the server not confirmed that? */
bool lo_order_owed(const struct order *o);
/* Call it when what the server owes has changed. */
void lo_order_owe(struct order_queue *oq);
void lo_order_run(struct order_queue *oq);
void lo_order_retry_fire(struct loop_timer *t);
void lo_order_join(void *arg, uint32_t id, void (*ready)(void *rarg), void *rarg);
#endif
