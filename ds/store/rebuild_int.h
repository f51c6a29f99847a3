/* SPDX-License-Identifier: Apache-2.0 */
/* rebuild_int.h - inside ds/store: sessions, and locks of ranges on workers. */
#ifndef DS_STORE_REBUILD_INT_H
#define DS_STORE_REBUILD_INT_H
#include "ds/store/rebuild.h"
#include "ds/store/store_int.h"

struct ds_session {
	struct ds_obj *ss_obj; /* a reference */
	uint64_t ss_id;
	int ss_fd; /* its own, open since BEGIN, so that it sees every failed write-back */
	struct ds_session *ss_next; /* s_sessions_lock guards this and the next two */
	unsigned ss_refs;
	uint64_t ss_stepped_ns;
	/* ob_lock guards all below; ss_notes has nothing below ss_cursor */
	struct extents ss_notes;
	uint64_t ss_cursor;
	uint64_t ss_least; /* changes have put the object's end at least there */
	uint64_t ss_size;  /* the source's, when the cursor came to its end */
	bool ss_dead;
	int ss_failed; /* ds_obj_note_failed: the first error, or 0 */
};

extern struct metric *ds_m_rebuilt[3], *ds_m_put_off; /* bytes copied, there already, holes */

/* Blocks. DIRECT and BUFFERED exclude each other as in I/O; ALONE excludes all others. */
enum ds_lock { DS_LOCK_BUFFERED, DS_LOCK_DIRECT, DS_LOCK_ALONE };
void ds_change_lock(struct ds_change *c, struct ds_obj *o, uint64_t from, uint64_t to,
		    enum ds_lock how);

/* A change of the object begins; inside what ds_write_drain waits for, or on the orders worker. */
void ds_watch_note(struct ds_obj *o, uint64_t from, uint64_t to);
/* Drop: the object is deleted. Close: the store is closed. */
void ds_watch_drop(struct ds_store *s, const struct cap_object *key);
void ds_watches_close(struct ds_store *s);

/* The object is deleted. */
void ds_session_drop(struct ds_store *s, const struct cap_object *key);
/* The store is closed. */
void ds_sessions_close(struct ds_store *s);
#endif
