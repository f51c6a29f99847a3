/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nfs3ds_copy.c - makes an object on an NFSv3 data server equal to one on another server. It runs
 * the steps BEGIN, PULL, END and ABORT (proto/ctl.x) here, by NFSv3, as weft-ds runs them itself.
 *
 * While it copies, no client has a layout that writes the object (lo_copied_here). So every change
 * comes through ds_reg_write, and is noted here from BEGIN on. The rules and the proof are in
 * ds/store/rebuild.h. A window is read from the source, then locked. Ranges that were not noted
 * become as the source has them, and writes to the window wait meanwhile. A change of size or a
 * deletion ends the session, and the copy begins again. So does a restart, because sessions are in
 * memory.
 *
 * A lost connection, or a server that refuses connections, costs the step in progress, not the
 * copy. A PULL or an END that has changed nothing is done again. If a WRITE or a SETATTR of the
 * copy got no answer, the server may still execute it, after a write of a client. Such a change is
 * at or behind the cursor. So the session takes no step until a BEGIN, which comes with a fence
 * that refuses the late call. It then goes on at the cursor, without its notes: nothing is under
 * way, and the source has all that they covered. A BEGIN that got no answer leaves the session so,
 * too: the job thaws the file, and comes with another fence and another BEGIN.
 *
 * Everything runs on the first loop, except that any loop notes writes.
 */
#include "base/extents.h"
#include "base/log.h"
#include "mds/dataserver/nfs3ds.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <urcu/compiler.h>

#define WINDOW	   (1u << 20)
#define PAGE	   4096u
#define STEP_MS	   10000
#define COMMIT_MS  300000 /* COMMIT syncs an object that may be large */
#define COPIES_MAX 64u
#define WHOLE	   UINT64_MAX /* cursor: to the source's end */

struct nfs3ds_copy {
	struct nfs3ds_copy *cy_next;
	struct gen *cy_gen;
	uint8_t cy_key[NFS3DS_OBJECT_KEY];
	struct ds_reg_handle cy_h; /* of the target, with its owner in the epoch of the step */
	uint64_t cy_session;
	/* Under gn_copy_lock: */
	struct extents cy_notes;
	uint64_t cy_cursor, cy_least;	   /* cy_least: the end of what was written since BEGIN */
	uint64_t cy_lock_from, cy_lock_to; /* the locked window; equal: none */
	struct ds_reg_io *cy_waits;
	unsigned cy_noted; /* writes that were noted ahead of the copy, and are not over */
	_Atomic bool cy_dead;
	bool cy_unsure; /* a change got no answer, and no BEGIN has come since; the first loop's */
	/* The step in progress: */
	struct ds_reg_ctl *cy_ctl;
	struct ds_reg_io cy_io;
	struct nfs3ds_rpc cy_rpc;
	uint32_t cy_source;
	struct ds_reg_handle cy_source_h;
	uint64_t cy_was;  /* the target's size at BEGIN */
	uint64_t cy_size; /* the source's size, once its end was reached */
	uint32_t cy_len, cy_got, cy_at, cy_run;
	bool cy_eof, cy_wrote, cy_lost, cy_over;
	uint64_t cy_verifier;
	uint8_t *cy_new, *cy_old, *cy_mask;
	ctl_rebuild_res cy_res;
};

/* ---- sessions ---- */

/* The caller holds gn_copy_lock, or runs on the first loop. */
static struct nfs3ds_copy *copy_find(struct gen *g, const uint8_t key[NFS3DS_OBJECT_KEY])
{
	struct nfs3ds_copy *cy = g->gn_copies;

	while (cy && memcmp(cy->cy_key, key, NFS3DS_OBJECT_KEY))
		cy = cy->cy_next;
	return cy;
}

static void nfs3ds_copy_copy_free(struct nfs3ds_copy *cy)
{
	extents_free(&cy->cy_notes);
	free(cy->cy_new);
	free(cy->cy_old);
	free(cy->cy_mask);
	free(cy);
}

/* No step may be in progress. */
static void copy_drop(struct nfs3ds_copy *cy)
{
	struct gen *g = cy->cy_gen;
	struct nfs3ds_copy **p = &g->gn_copies;

	pthread_mutex_lock(&g->gn_copy_lock);
	while (*p != cy)
		p = &(*p)->cy_next;
	*p = cy->cy_next;
	atomic_fetch_sub(&g->gn_ncopies, 1);
	pthread_mutex_unlock(&g->gn_copy_lock);
	nfs3ds_copy_copy_free(cy);
}

void nfs3ds_copies_free(struct gen *g)
{
	while (g->gn_copies) {
		struct nfs3ds_copy *cy = g->gn_copies;

		g->gn_copies = cy->cy_next;
		nfs3ds_copy_copy_free(cy);
	}
}

/* Ends the step, and drops the session if it has ended meanwhile. */
static void step_end(struct nfs3ds_copy *cy, ctl_status status)
{
	ctl_response res = {.status = atomic_load(&cy->cy_dead) && !cy->cy_over && status == CTL_OK
					      ? CTL_BAD_SESSION
					      : status};
	struct ds_reg_ctl *c = cy->cy_ctl;

	res.result.ctl_result_u.rebuild = cy->cy_res;
	cy->cy_ctl = NULL;
	if (atomic_load(&cy->cy_dead) || cy->cy_over)
		copy_drop(cy);
	nfs3ds_answer(c, &res);
}

/* The connection ended under the call, or there is none. A server that restarts, or its machine,
 * refuses connections for a while. */
static bool nfs3ds_copy_is_cut(int err)
{
	switch (-err) {
	case ECONNRESET:
	case ECONNABORTED:
	case EPIPE:
	case ENOTCONN:
	case ECONNREFUSED:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case EHOSTDOWN:
		return true;
	default:
		return false;
	}
}

/* CTL_NOT_JOINED: nothing was changed, and the step is asked for again in a moment. */
static ctl_status nfs3ds_copy_status_of(int err)
{
	bool again = err == -EAGAIN || err == -ETIMEDOUT || nfs3ds_copy_is_cut(err);

	return again		? CTL_NOT_JOINED
	       : err == -EACCES ? CTL_FENCED
	       : err == -ENOSPC ? CTL_NOSPC
				: CTL_IO;
}

bool nfs3ds_copy_end(struct gen *g, const uint8_t key[NFS3DS_OBJECT_KEY])
{
	struct nfs3ds_copy *cy = copy_find(g, key);

	if (!cy)
		return true;
	atomic_store(&cy->cy_dead, true);
	if (cy->cy_ctl)
		return false;
	copy_drop(cy);
	return true;
}

/* ---- notes ---- */

/* False: all of it is behind the copy. */
static bool note_add(struct nfs3ds_copy *cy, uint64_t from, uint64_t to)
{
	from = from > cy->cy_cursor ? from : cy->cy_cursor;
	if (from >= to)
		return false;
	if (extents_add(&cy->cy_notes, from, to))
		atomic_store(&cy->cy_dead, true); /* no room: the copy begins again */
	return true;
}

bool nfs3ds_copy_note(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h,
		      struct ds_reg_io *io)
{
	struct nfs3ds_copy *cy;
	struct gen *g;
	bool waits = false;

	if (!ds_reg_has_generic(d))
		return false;
	g = ds_reg_nfs3_of(d, id);
	if (!g || !atomic_load(&g->gn_ncopies))
		return false;
	pthread_mutex_lock(&g->gn_copy_lock);
	for (cy = g->gn_copies; cy && (cy->cy_h.dh_len != h->dh_len ||
				       memcmp(cy->cy_h.dh_data, h->dh_data, h->dh_len));
	     cy = cy->cy_next)
		;
	if (cy) {
		uint64_t end = io->di_off + io->di_asked;

		if (note_add(cy, io->di_off, end)) {
			io->di_noted = cy->cy_session;
			cy->cy_noted++;
		}
		cy->cy_least = end > cy->cy_least ? end : cy->cy_least;
		waits = io->di_off < cy->cy_lock_to && end > cy->cy_lock_from;
		if (waits) {
			io->di_next = cy->cy_waits;
			cy->cy_waits = io;
		}
	}
	pthread_mutex_unlock(&g->gn_copy_lock);
	return waits;
}

void nfs3ds_copy_noted(struct ds_reg_io *io)
{
	struct gen *g = ds_reg_nfs3_of(io->di_dsc, io->di_id);
	struct nfs3ds_copy *cy;

	if (!g)
		return;
	pthread_mutex_lock(&g->gn_copy_lock);
	for (cy = g->gn_copies; cy && cy->cy_session != io->di_noted; cy = cy->cy_next)
		;
	if (cy) {
		cy->cy_noted--;
		/* What the copy left to this write is not there. */
		if (io->di_err || io->di_count < io->di_asked)
			atomic_store(&cy->cy_dead, true);
	}
	pthread_mutex_unlock(&g->gn_copy_lock);
}

/* ---- a window ---- */

/* Locks the window: ranges noted before are left alone, and new writes wait. */
static void window_lock(struct nfs3ds_copy *cy)
{
	uint64_t from = cy->cy_cursor, to = from + cy->cy_got;

	memset(cy->cy_mask, 0, WINDOW);
	pthread_mutex_lock(&cy->cy_gen->gn_copy_lock);
	for (unsigned i = 0; i < cy->cy_notes.es_n; i++) {
		const struct extent *e = &cy->cy_notes.es_at[i];
		uint64_t a = e->e_from > from ? e->e_from : from, b = e->e_to < to ? e->e_to : to;

		if (a < b)
			memset(cy->cy_mask + (a - from), 1, b - a);
	}
	cy->cy_lock_from = from;
	cy->cy_lock_to = cy->cy_eof ? UINT64_MAX : to;
	pthread_mutex_unlock(&cy->cy_gen->gn_copy_lock);
}

static void window_unlock(struct nfs3ds_copy *cy, uint64_t cursor)
{
	struct ds_reg_io *waits;

	pthread_mutex_lock(&cy->cy_gen->gn_copy_lock);
	waits = cy->cy_waits;
	cy->cy_waits = NULL;
	cy->cy_lock_from = cy->cy_lock_to = 0;
	cy->cy_cursor = cursor;
	extents_forget(&cy->cy_notes, cursor);
	pthread_mutex_unlock(&cy->cy_gen->gn_copy_lock);
	while (waits) {
		struct ds_reg_io *io = waits;

		waits = io->di_next;
		nfs3ds_copy_let_go(io);
	}
}

bool nfs3ds_copies_busy(const struct gen *g)
{
	const struct nfs3ds_copy *cy = g->gn_copies;

	while (cy && !cy->cy_ctl)
		cy = cy->cy_next;
	return cy;
}

static void window_failed(struct nfs3ds_copy *cy, ctl_status status)
{
	window_unlock(cy, cy->cy_cursor);
	step_end(cy, status);
}

/* A change of the window failed. */
static void nfs3ds_copy_change_failed(struct nfs3ds_copy *cy, int err)
{
	cy->cy_unsure = nfs3ds_copy_is_cut(err);
	window_failed(cy, cy->cy_unsure	      ? CTL_REBUILDING
			  : err == -ETIMEDOUT ? CTL_IO
					      : nfs3ds_copy_status_of(err));
}

static void nfs3ds_copy_window_done(struct nfs3ds_copy *cy)
{
	uint64_t next = cy->cy_cursor + cy->cy_got;

	cy->cy_res.next = cy->cy_eof ? cy->cy_size : next;
	cy->cy_res.eof = cy->cy_eof;
	cy->cy_res.same =
		cy->cy_got - (cy->cy_res.copied < cy->cy_got ? cy->cy_res.copied : cy->cy_got);
	window_unlock(cy, cy->cy_eof ? WHOLE : next);
	step_end(cy, CTL_OK);
}

static void nfs3ds_copy_ended(struct nfs3ds_rpc *r)
{
	struct nfs3ds_copy *cy = caa_container_of(r, struct nfs3ds_copy, cy_rpc);

	int err = nfs3ds_errno(r);

	if (err)
		nfs3ds_copy_change_failed(cy, err == -EPERM ? -EACCES : err);
	else
		nfs3ds_copy_window_done(cy);
}

/* Sets the target's size to the source's, or to the end of a later write since BEGIN. The window
 * from here to the end is locked, so that no write changes the size meanwhile. */
static void nfs3ds_copy_put_end(struct nfs3ds_copy *cy)
{
	struct nfs3_sattr sa = {.sa_set = NFS3_SA_SIZE};
	struct nfs3ds_fh fh = {.f_len = cy->cy_h.dh_len};

	pthread_mutex_lock(&cy->cy_gen->gn_copy_lock);
	sa.sa_size = cy->cy_least > cy->cy_size ? cy->cy_least : cy->cy_size;
	pthread_mutex_unlock(&cy->cy_gen->gn_copy_lock);
	/* Between the source's end and such a write the target has old data. A new session reads a
	 * source that reaches that far. */
	if (sa.sa_size > cy->cy_size && cy->cy_was > cy->cy_size) {
		atomic_store(&cy->cy_dead, true);
		window_failed(cy, CTL_BAD_SESSION);
		return;
	}
	memcpy(fh.f_data, cy->cy_h.dh_data, fh.f_len);
	/* Send it as the owner of the epoch: if the server executes this call late, after its
	 * timeout, the next fence refuses it. */
	cy->cy_rpc.gr_uid = cy->cy_h.dh_uid;
	cy->cy_rpc.gr_gid = cy->cy_h.dh_gid;
	cy->cy_rpc.gr_done = nfs3ds_copy_ended;
	nfs3ds_setattr(cy->cy_gen->gn_client, &cy->cy_rpc, &fh, &sa);
}

static void nfs3ds_copy_write_next(struct nfs3ds_copy *cy);

static void wrote(struct ds_reg_io *io, int err)
{
	struct nfs3ds_copy *cy = caa_container_of(io, struct nfs3ds_copy, cy_io);

	if (err) {
		nfs3ds_copy_change_failed(cy, err);
		return;
	}
	/* The server may have lost what it had only in memory. END finds that out. */
	cy->cy_lost |= cy->cy_wrote && cy->cy_verifier != io->di_verifier;
	cy->cy_verifier = io->di_verifier;
	cy->cy_wrote = true;
	cy->cy_res.copied += io->di_count;
	cy->cy_at += io->di_count;
	cy->cy_run -= io->di_count;
	nfs3ds_copy_write_next(cy);
}

/* Returns how many bytes from `at` on, up to the end of the page, are all noted or all not. */
static uint32_t nfs3ds_copy_part(const struct nfs3ds_copy *cy, uint32_t at)
{
	uint32_t to = at;

	while (to < cy->cy_got && cy->cy_mask[to] == cy->cy_mask[at] && (to == at || to % PAGE))
		to++;
	return to - at;
}

static bool nfs3ds_copy_differs(const struct nfs3ds_copy *cy, uint32_t at, uint32_t n)
{
	return !cy->cy_mask[at] && memcmp(cy->cy_new + at, cy->cy_old + at, n);
}

/* Finds the next run of bytes that differ. */
static bool find_run(struct nfs3ds_copy *cy)
{
	uint32_t n;

	while (cy->cy_at < cy->cy_got &&
	       !nfs3ds_copy_differs(cy, cy->cy_at, n = nfs3ds_copy_part(cy, cy->cy_at)))
		cy->cy_at += n;
	cy->cy_run = 0;
	while (cy->cy_at + cy->cy_run < cy->cy_got &&
	       nfs3ds_copy_differs(cy, cy->cy_at + cy->cy_run,
				   n = nfs3ds_copy_part(cy, cy->cy_at + cy->cy_run)))
		cy->cy_run += n;
	return cy->cy_run;
}

static void nfs3ds_copy_write_next(struct nfs3ds_copy *cy)
{
	struct ds_reg *d = cy->cy_gen->gn_dsc;
	struct ds_reg_server sv;

	if (!cy->cy_run && !find_run(cy)) {
		if (cy->cy_eof)
			nfs3ds_copy_put_end(cy);
		else
			nfs3ds_copy_window_done(cy);
		return;
	}
	if (!ds_reg_get(d, cy->cy_gen->gn_id, &sv)) {
		window_failed(cy, CTL_IO);
		return;
	}
	memset(&cy->cy_io, 0, sizeof(cy->cy_io));
	cy->cy_io.di_done = wrote;
	cy->cy_io.di_data = cy->cy_new + cy->cy_at;
	cy->cy_io.di_off = cy->cy_cursor + cy->cy_at;
	cy->cy_io.di_count = cy->cy_run < sv.sv_max_write ? cy->cy_run : sv.sv_max_write;
	cy->cy_io.di_stable = NFS3_UNSTABLE;
	nfs3ds_copy_write(d, cy->cy_gen->gn_id, &cy->cy_h, &cy->cy_io, STEP_MS);
}

/* ---- PULL: reads the source's window, then the target's ---- */

static void nfs3ds_copy_read_more(struct nfs3ds_copy *cy, uint32_t id,
				  const struct ds_reg_handle *h, uint8_t *to, uint32_t len,
				  void (*done)(struct ds_reg_io *io, int err))
{
	struct ds_reg *d = cy->cy_gen->gn_dsc;
	struct ds_reg_server sv;

	memset(&cy->cy_io, 0, sizeof(cy->cy_io));
	cy->cy_io.di_done = done;
	cy->cy_io.di_read_to = to + cy->cy_at;
	cy->cy_io.di_off = cy->cy_cursor + cy->cy_at;
	cy->cy_io.di_count = len - cy->cy_at;
	if (ds_reg_get(d, id, &sv) && cy->cy_io.di_count > sv.sv_max_read)
		cy->cy_io.di_count = sv.sv_max_read;
	ds_reg_read(d, id, h, &cy->cy_io, STEP_MS);
}

static void write_window(struct nfs3ds_copy *cy)
{
	cy->cy_at = cy->cy_run = 0;
	window_lock(cy);
	/* A change that was not noted may be in progress. */
	if (atomic_load(&cy->cy_dead))
		window_failed(cy, CTL_BAD_SESSION);
	else
		nfs3ds_copy_write_next(cy);
}

static void old_read(struct ds_reg_io *io, int err)
{
	struct nfs3ds_copy *cy = caa_container_of(io, struct nfs3ds_copy, cy_io);

	if (err) {
		step_end(cy, nfs3ds_copy_status_of(err));
		return;
	}
	cy->cy_at += io->di_count;
	if (cy->cy_at < cy->cy_got && !io->di_eof)
		nfs3ds_copy_read_more(cy, cy->cy_gen->gn_id, &cy->cy_h, cy->cy_old, cy->cy_got,
				      old_read);
	else
		write_window(cy);
}

static void new_read(struct ds_reg_io *io, int err)
{
	struct nfs3ds_copy *cy = caa_container_of(io, struct nfs3ds_copy, cy_io);

	if (err) {
		step_end(cy, CTL_SOURCE);
		return;
	}
	cy->cy_at += io->di_count;
	cy->cy_eof = io->di_eof;
	if (cy->cy_at < cy->cy_len && !io->di_eof) {
		nfs3ds_copy_read_more(cy, cy->cy_source, &cy->cy_source_h, cy->cy_new, cy->cy_len,
				      new_read);
		return;
	}
	cy->cy_got = cy->cy_at;
	cy->cy_size = cy->cy_cursor + cy->cy_got;
	if (cy->cy_size > DS_REG_GEN_SIZE_MAX) {
		step_end(cy, CTL_SOURCE);
		return;
	}
	cy->cy_res.size = cy->cy_size > cy->cy_was ? cy->cy_size : cy->cy_was;
	memset(cy->cy_old, 0, WINDOW);
	cy->cy_at = 0;
	if (cy->cy_got && cy->cy_cursor < cy->cy_was)
		nfs3ds_copy_read_more(cy, cy->cy_gen->gn_id, &cy->cy_h, cy->cy_old, cy->cy_got,
				      old_read);
	else
		write_window(cy);
}

/* Finds the server to read, and the handle and owner for that. */
static bool nfs3ds_copy_source_of(struct nfs3ds_copy *cy, const ctl_peer *p)
{
	struct ds_reg_server sv;

	if (!ds_reg_get_uuid(cy->cy_gen->gn_dsc, (const uint8_t *)p->ds_uuid, &sv) ||
	    p->foreign.foreign_len > DS_REG_HANDLE_MAX)
		return false;
	cy->cy_source = sv.sv_id;
	memset(&cy->cy_source_h, 0, sizeof(cy->cy_source_h));
	cy->cy_source_h.dh_uid = p->uid;
	cy->cy_source_h.dh_gid = p->gid;
	cy->cy_source_h.dh_len = p->foreign.foreign_len ? p->foreign.foreign_len : CTL_HANDLE_LEN;
	memcpy(cy->cy_source_h.dh_data, p->foreign.foreign_len ? p->foreign.foreign_val : p->handle,
	       cy->cy_source_h.dh_len);
	return true;
}

static void nfs3ds_copy_pull(struct nfs3ds_copy *cy, const ctl_rebuild_args *a)
{
	if (cy->cy_cursor == WHOLE) {
		cy->cy_res.next = cy->cy_res.size = cy->cy_size;
		cy->cy_res.eof = 1;
		step_end(cy, CTL_OK);
		return;
	}
	if (!a->length || a->offset > cy->cy_cursor) {
		step_end(cy, CTL_INVAL);
		return;
	}
	if (!nfs3ds_copy_source_of(cy, &a->source)) {
		step_end(cy, CTL_SOURCE);
		return;
	}
	cy->cy_len = WINDOW - (uint32_t)(cy->cy_cursor % WINDOW);
	cy->cy_at = 0;
	nfs3ds_copy_read_more(cy, cy->cy_source, &cy->cy_source_h, cy->cy_new, cy->cy_len,
			      new_read);
}

/* ---- BEGIN and END ---- */

/* If it is asked for again, what the session has copied stays. */
static void nfs3ds_copy_begin_failed(struct nfs3ds_copy *cy, int err)
{
	ctl_status status = nfs3ds_copy_status_of(err);

	if (status == CTL_NOT_JOINED)
		cy->cy_unsure = true;
	else
		atomic_store(&cy->cy_dead, true);
	step_end(cy, status);
}

/* What the copy finds equal from now on is on stable storage, and END notices any restart since. */
static void synced(struct ds_reg_io *io, int err)
{
	struct nfs3ds_copy *cy = caa_container_of(io, struct nfs3ds_copy, cy_io);

	if (err) {
		nfs3ds_copy_begin_failed(cy, err);
		return;
	}
	/* the server restarted: what an earlier BEGIN's session wrote may be lost */
	if (cy->cy_lost || (cy->cy_wrote && cy->cy_verifier != io->di_verifier))
		cy->cy_cursor = 0;
	cy->cy_lost = false;
	cy->cy_verifier = io->di_verifier;
	cy->cy_wrote = true;
	step_end(cy, CTL_OK);
}

static void nfs3ds_copy_commit(struct nfs3ds_copy *cy, void (*done)(struct ds_reg_io *io, int err))
{
	memset(&cy->cy_io, 0, sizeof(cy->cy_io));
	cy->cy_io.di_done = done;
	ds_reg_commit(cy->cy_gen->gn_dsc, cy->cy_gen->gn_id, &cy->cy_h, &cy->cy_io, COMMIT_MS);
}

static void nfs3ds_copy_begun(struct nfs3ds_rpc *r)
{
	struct nfs3ds_copy *cy = caa_container_of(r, struct nfs3ds_copy, cy_rpc);

	if (!nfs3ds_sized(r)) {
		nfs3ds_copy_begin_failed(cy, nfs3ds_errno(r));
	} else if (r->gr_attr.fa_uid != cy->cy_h.dh_uid || r->gr_attr.fa_gid != cy->cy_h.dh_gid) {
		/* the fence has not come yet, or another one has */
		atomic_store(&cy->cy_dead, true);
		step_end(cy, CTL_FENCED);
	} else {
		cy->cy_was = cy->cy_res.size = r->gr_attr.fa_size;
		nfs3ds_copy_commit(cy, synced);
	}
}

/* Drops the oldest session that takes no step before a BEGIN. Its job may have ended without an
 * ABORT. If the job goes on, its copy begins at 0. False: there is no such session. */
static bool nfs3ds_copy_make_room(struct gen *g)
{
	struct nfs3ds_copy *oldest = NULL;

	for (struct nfs3ds_copy *cy = g->gn_copies; cy; cy = cy->cy_next)
		if (!cy->cy_ctl && (cy->cy_unsure || atomic_load(&cy->cy_dead)))
			oldest = cy;
	if (oldest)
		copy_drop(oldest);
	return oldest;
}

static struct nfs3ds_copy *nfs3ds_copy_copy_new(struct gen *g, const uint8_t key[NFS3DS_OBJECT_KEY],
						uint64_t session, const struct ds_reg_handle *h)
{
	struct nfs3ds_copy *cy;

	if (atomic_load(&g->gn_ncopies) >= COPIES_MAX && !nfs3ds_copy_make_room(g))
		return NULL;
	cy = calloc(1, sizeof(*cy));
	if (!cy)
		return NULL;
	cy->cy_gen = g;
	memcpy(cy->cy_key, key, NFS3DS_OBJECT_KEY);
	cy->cy_session = session;
	cy->cy_h = *h;
	cy->cy_new = malloc(WINDOW);
	cy->cy_old = malloc(WINDOW);
	cy->cy_mask = malloc(WINDOW);
	if (!cy->cy_new || !cy->cy_old || !cy->cy_mask) {
		nfs3ds_copy_copy_free(cy);
		return NULL;
	}
	pthread_mutex_lock(&g->gn_copy_lock);
	cy->cy_next = g->gn_copies;
	g->gn_copies = cy;
	atomic_fetch_add(&g->gn_ncopies, 1);
	pthread_mutex_unlock(&g->gn_copy_lock);
	return cy;
}

static void nfs3ds_copy_get_attr(struct nfs3ds_copy *cy, void (*done)(struct nfs3ds_rpc *r))
{
	struct nfs3ds_fh fh = {.f_len = cy->cy_h.dh_len};

	memcpy(fh.f_data, cy->cy_h.dh_data, fh.f_len);
	cy->cy_rpc.gr_uid = cy->cy_rpc.gr_gid = 0;
	cy->cy_rpc.gr_done = done;
	nfs3ds_getattr(cy->cy_gen->gn_client, &cy->cy_rpc, &fh);
}

static void nfs3ds_copy_counted(struct nfs3ds_rpc *r)
{
	struct nfs3ds_copy *cy = caa_container_of(r, struct nfs3ds_copy, cy_rpc);

	if (!nfs3ds_sized(r)) {
		step_end(cy, nfs3ds_copy_status_of(nfs3ds_errno(r)));
		return;
	}
	cy->cy_res.size = r->gr_attr.fa_size;
	cy->cy_res.writes = (uint64_t)r->gr_attr.fa_mtime.tv_sec * 1000000000 +
			    (uint64_t)r->gr_attr.fa_mtime.tv_nsec;
	cy->cy_over = !atomic_load(&cy->cy_dead);
	step_end(cy, CTL_OK);
}

static void nfs3ds_copy_committed(struct ds_reg_io *io, int err)
{
	struct nfs3ds_copy *cy = caa_container_of(io, struct nfs3ds_copy, cy_io);

	if (err) {
		step_end(cy, nfs3ds_copy_status_of(err));
	} else if (cy->cy_lost || cy->cy_verifier != io->di_verifier) {
		/* the server restarted, and may have lost what was written or found equal */
		atomic_store(&cy->cy_dead, true);
		step_end(cy, CTL_BAD_SESSION);
	} else {
		nfs3ds_copy_get_attr(cy, nfs3ds_copy_counted);
	}
}

static void nfs3ds_copy_finish(struct nfs3ds_copy *cy)
{
	unsigned noted;

	if (cy->cy_cursor != WHOLE) {
		step_end(cy, CTL_INVAL);
		return;
	}
	/* Where such a write is not at the target yet, the target has older bytes. */
	pthread_mutex_lock(&cy->cy_gen->gn_copy_lock);
	noted = cy->cy_noted;
	pthread_mutex_unlock(&cy->cy_gen->gn_copy_lock);
	if (noted) {
		step_end(cy, CTL_NOT_JOINED); /* asked again in a moment */
		return;
	}
	nfs3ds_copy_commit(cy, nfs3ds_copy_committed);
}

/* After the fence that this BEGIN comes with. False: the session cannot go on. */
static bool nfs3ds_copy_go_on(struct nfs3ds_copy *cy, uint64_t session,
			      const struct ds_reg_handle *h)
{
	bool can;

	pthread_mutex_lock(&cy->cy_gen->gn_copy_lock);
	can = cy->cy_unsure && !atomic_load(&cy->cy_dead) && !cy->cy_noted &&
	      cy->cy_h.dh_len == h->dh_len && !memcmp(cy->cy_h.dh_data, h->dh_data, h->dh_len);
	if (can) {
		cy->cy_unsure = false;
		cy->cy_session = session;
		cy->cy_h = *h;
		extents_free(&cy->cy_notes);
		cy->cy_least = 0;
	}
	pthread_mutex_unlock(&cy->cy_gen->gn_copy_lock);
	return can;
}

static void nfs3ds_copy_begin(struct gen *g, struct ds_reg_ctl *c, struct nfs3ds_copy *cy,
			      const uint8_t key[NFS3DS_OBJECT_KEY], const struct ds_reg_handle *h)
{
	const ctl_rebuild_args *a = &c->dc_req.ctl_request_u.rebuild;

	if (cy && cy->cy_session != a->session && !nfs3ds_copy_go_on(cy, a->session, h)) {
		copy_drop(cy);
		cy = NULL;
	}
	if (!cy)
		cy = nfs3ds_copy_copy_new(g, key, a->session, h);
	if (!cy) {
		nfs3ds_refuse(c, CTL_IO);
		return;
	}
	cy->cy_ctl = c;
	memset(&cy->cy_res, 0, sizeof(cy->cy_res));
	nfs3ds_copy_get_attr(cy, nfs3ds_copy_begun);
}

void nfs3ds_rebuild(struct gen *g, struct ds_reg_ctl *c)
{
	const ctl_rebuild_args *a = &c->dc_req.ctl_request_u.rebuild;
	uint8_t key[NFS3DS_OBJECT_KEY];
	struct nfs3ds_object o;
	struct ds_reg_handle h;
	struct nfs3ds_copy *cy;
	int err = nfs3ds_object_find(g, &a->object, a->epoch, key, &o, &h);

	if (err) {
		nfs3ds_refuse(c, err == -ENOENT ? CTL_NOENT : CTL_IO);
		return;
	}
	cy = copy_find(g, key);
	if (cy && cy->cy_ctl) {
		/* a step is in progress whose caller has stopped waiting */
		nfs3ds_refuse(c, CTL_NOT_JOINED);
	} else if (a->step == CTL_REBUILD_BEGIN) {
		nfs3ds_copy_begin(g, c, cy, key, &h);
	} else if (a->step == CTL_REBUILD_ABORT) {
		if (cy && cy->cy_session == a->session)
			copy_drop(cy);
		nfs3ds_refuse(c, CTL_OK);
	} else if (!cy || cy->cy_session != a->session || cy->cy_unsure ||
		   atomic_load(&cy->cy_dead)) {
		nfs3ds_refuse(c, CTL_BAD_SESSION);
	} else {
		cy->cy_ctl = c;
		cy->cy_h.dh_uid = h.dh_uid;
		cy->cy_h.dh_gid = h.dh_gid;
		memset(&cy->cy_res, 0, sizeof(cy->cy_res));
		if (a->step == CTL_REBUILD_END)
			nfs3ds_copy_finish(cy);
		else
			nfs3ds_copy_pull(cy, a);
	}
}
