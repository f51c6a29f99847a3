/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pending_layout.h - a file's pending layout: the map that a restripe fills, and that will be the
 * file's (docs/restripe.md). It is a row NS_T_PENDING beside the inode. Its objects have the
 * incarnation that the file gets when it is placed again. So none of them is an object of the file,
 * and no layout names one.
 */
#ifndef MDS_LO_PENDING_H
#define MDS_LO_PENDING_H
#include "mds/layout/lo.h"

struct lo_pending {
	uint16_t tw_incarnation; /* of its objects */
	uint8_t tw_number;	 /* tells this restripe from others of the file (jobs/job.h) */
	struct lo_map tw_map;
};
/* -ENOENT, -EIO */
int lo_pending_get(struct kv_txn *t, uint64_t ino, struct lo_pending *tw);
int lo_pending_put(struct kv_txn *t, uint64_t ino, const struct lo_pending *tw); /* W */
/* W: deletes the row; its objects are the file's now. */
int lo_pending_del(struct kv_txn *t, uint64_t ino);
/* W: deletes the row, and orders the deletion of its objects. 0 also if there is none. */
int lo_pending_free(struct lo *lo, struct kv_txn *t, const struct ns_inode *i);
bool lo_pending_is(struct kv_txn *t, uint64_t ino);
/* Calls fn for the rows from an inode on; fn returns 0 to go on. */
int lo_pendings(struct kv_txn *t, uint64_t from,
		int (*fn)(void *arg, uint64_t ino, const struct lo_pending *tw), void *arg);
/* Decodes a row: 0 or -EIO. */
int lo_pending_decode(struct kv_slice id, struct kv_slice val, uint64_t *ino,
		      struct lo_pending *tw);
/* Have they the same objects? */
bool lo_pending_same(const struct lo_pending *a, const struct lo_pending *b);
/* Places a pending layout as the file's policy says, but with these stripes and this unit, on
 * servers that are there now. copy: the first copy number of its objects, which no pending layout
 * of the file may have had lately, because its objects may still be there. With a line in err
 * -EINVAL, -EAGAIN or -ENOSPC. */
int lo_pending_place(struct lo *lo, const struct ns_inode *i, const struct lo_map *m,
		     unsigned stripes, uint32_t unit, unsigned copy, uint32_t patience_ms,
		     struct lo_pending *tw, char *err, size_t errlen);

/* A request to data servers (proto/ctl.x). an_done is called once, on the calling loop, never from
 * inside the call. 0; -ESTALE: this session does not watch the object; -EREMOTEIO: the source
 * failed; -ENOSPC, -EIO: the server failed; -ETIMEDOUT: it could not be reached. */
struct lo_restripe_io {
	void (*an_done)(struct lo_restripe_io *an, int err);
	void *an_priv;
	/* WATCH: an object of the file */
	ctl_watch_res an_taken;
	ctl_span an_span[CTL_SPANS_MAX]; /* taken, or to be filled */
	unsigned an_nspan;
	/* FILL: an object of the file's map, and one of the pending layout */
	unsigned an_source, an_target;
	ctl_fill_res an_filled;
	/* for lo only */
	struct ds_reg_ctl an_ctl;
	ctl_status an_status;
	ctl_addr an_addrs[DS_REG_ADDRS];
	char an_key[2 * CAP_TLS_KEY_LEN + 1];
	struct ds_reg_server an_peer;
};
void lo_watch(struct lo *lo, struct lo_restripe_io *an, const struct ns_inode *i,
	      const struct lo_map *m, unsigned obj, int step, uint64_t session);
/* Set an_span, an_source and an_target before. end: the object must also end at size. */
void lo_fill(struct lo *lo, struct lo_restripe_io *an, const struct ns_inode *i,
	     const struct lo_map *m, const struct lo_pending *tw, bool end, uint64_t size);
#endif
