/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rebuild.h - making an object equal to one of another server while clients write it
 * (docs/repair.md).
 *
 * An object is flagged from BEGIN to END, durably. While it is flagged, no client reads it, and
 * clients write it only while there is a session, in memory. The session knows what has been
 * changed since BEGIN: exact ranges, noted before the file is touched. The session writes what it
 * fetches from the source window by window, each locked against clients, and never over a noted
 * byte.
 *
 * Why both are equal in the end: every client that changes an object changes all its copies, and no
 * change from before BEGIN is still in progress (the fence that BEGIN demands, and the drain in
 * it). Take a byte of a window, and the last change of it, W.
 * - W was noted here when the window was locked: the session leaves the byte alone. So the byte is
 *   W's here, and W is or will be at the source.
 * - W was not noted then, and comes later: it waits for the window, and overwrites what the window
 *   wrote.
 * - W is from before BEGIN: it is at the source, and was fetched.
 * The time of the fetch does not matter, so the fetch takes no lock. A change that reaches one
 * server and never the other is not acknowledged, or the metadata server knows that this copy is
 * stale.
 *
 * Where a noted change has not reached the file yet, the file has bytes from before BEGIN. So END
 * waits for such changes, and fails where one of them failed.
 */
#ifndef DS_STORE_REBUILD_H
#define DS_STORE_REBUILD_H
#include "base/extents.h"
#include "ds/store/store.h"
#include <semaphore.h>

/* ---- changes of an object ---- */

/* True until the object's rebuild has ended. */
bool ds_obj_rebuilding(const struct ds_obj *o);
/* True when the object is not being rebuilt, or has a session. */
bool ds_obj_writable(struct ds_obj *o);
/* On a loop, between ds_write_begin and ds_write_end: notes a write that a client will do. -EAGAIN:
 * not now; -EIO: there is no room for the note. */
int ds_obj_note(struct ds_obj *o, uint64_t off, uint32_t len);
/* A change that was noted failed with err, so it is not in the file, or not all of it. The session
 * does not make these bytes equal to the source's any more, so it cannot end well. Call it before
 * ds_write_end. */
void ds_obj_note_failed(struct ds_obj *o, int err);

/* As ds_obj_note, for a change on a worker. The pull stays out until the change ends. */
struct ds_change {
	struct ds_range dc_range;
	struct ds_obj *dc_obj; /* NULL: nothing is locked */
	sem_t dc_sem;
};
/* to: EXTENT_END when the change sets the object's end. least: the change puts the object's end at
 * least there, or 0. Lasts until ds_change_end, also after an error. -ENOLINK: there is no session;
 * -ENOBUFS: the session has no room. */
int ds_change_begin(struct ds_change *c, struct ds_obj *o, uint64_t from, uint64_t to,
		    uint64_t least);
/* As ds_change_begin, for an order, which is done also without a session. rounds: those of a clone,
 * as ds_clone_rounds returns them. */
int ds_change_order(struct ds_change *c, struct ds_obj *o, const ctl_order *order, uint32_t rounds);
void ds_change_end(struct ds_change *c);

/* ---- reads of an object while clients write it (watch.c): on the orders worker ---- */

/* One step of a WATCH. spans: room for CTL_SPANS_MAX. */
ctl_status ds_watch(struct ds_store *s, const ctl_watch_args *a, ctl_span *spans,
		    ctl_watch_res *res);

/* ---- the source's side; blocks ---- */

struct ds_part {
	uint64_t pt_off;
	uint32_t pt_len;
};
#define DS_FETCH_MEM   (DS_MAX_IO + DS_PAGE)
#define DS_SESSION_MEM (2 * (DS_MAX_IO + DS_PAGE)) /* page-aligned */
struct ds_fetch {
	/* the range, at most DS_MAX_IO; it may end before the range that was asked for */
	uint64_t ft_off, ft_to;
	uint64_t ft_size; /* the object's: nothing is past it */
	unsigned ft_nparts;
	struct ds_part ft_part[CTL_PEER_PARTS]; /* data, ascending; the rest is holes */
	/* the parts' bytes, one part after another; page-aligned memory of the caller, DS_FETCH_MEM
	 * bytes */
	uint8_t *ft_data;
	uint32_t ft_len;
};
/* Fills all but ft_off and ft_data. o NULL: the object does not exist, and is empty. */
int ds_fetch_read(struct ds_obj *o, uint32_t count, struct ds_fetch *f);

/* Makes the fetched range of an object that only a FILL uses equal to f, and reads back what it
 * writes. mem: page-aligned, DS_SESSION_MEM bytes. -EIO: the disk returned other data. Blocks. */
int ds_fill_write(struct ds_obj *o, int fd, const struct ds_fetch *f, uint8_t *mem);
/* Sets the object's end. */
int ds_fill_end(int fd, uint64_t size);
/* Makes all of it durable. */
int ds_fill_sync(struct ds_obj *o, int fd);

/* ---- the target's side ---- */

struct ds_session;
/* On the orders worker. */
ctl_status ds_rebuild_begin(struct ds_store *s, const ctl_rebuild_args *a, ctl_rebuild_res *res);
ctl_status ds_rebuild_abort(struct ds_store *s, const ctl_rebuild_args *a);
/* END in two steps: ds_rebuild_sync does all that blocks long; then ds_rebuild_end runs on the
 * orders worker. */
ctl_status ds_rebuild_sync(struct ds_store *s, const ctl_rebuild_args *a);
ctl_status ds_rebuild_end(struct ds_store *s, const ctl_rebuild_args *a);

/* Returns a reference; one thread at a time pulls. NULL: a is not about the object's session. */
struct ds_session *ds_session_get(struct ds_store *s, const ctl_rebuild_args *a);
void ds_session_put(struct ds_session *ss);
/* CTL_OK; or a change that was noted has failed: ends the session, and returns what its step
 * answers. On a full disk that is CTL_NOSPC, else CTL_BAD_SESSION: the rebuild begins again. */
ctl_status ds_session_check(struct ds_session *ss);
/* The offset that the session has reached; EXTENT_END: the source's end. */
uint64_t ds_session_cursor(struct ds_session *ss);
/* The source's size, once the cursor has reached its end. */
uint64_t ds_session_size(struct ds_session *ss);
/* Looks at ds_session_check, writes what was fetched at the cursor, and moves the cursor. Adds the
 * bytes to res->copied, same and holes. */
ctl_status ds_session_write(struct ds_session *ss, const struct ds_fetch *f, uint8_t *mem,
			    ctl_rebuild_res *res);
unsigned ds_store_sessions(struct ds_store *s);
#endif
