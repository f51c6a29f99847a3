/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io.c - reads, writes and syncs objects on the ring of the calling loop.
 *
 * A write is cut into at most three pieces: a head up to a page boundary, whole pages, and a tail.
 * Whole pages in aligned memory use O_DIRECT: the disk reads them from where the network put them.
 * If that is the memory pool (fixed buffers), the kernel need not pin pages. The rest goes through
 * the page cache. A read is one piece. It is direct if it starts on a page, and may then read on to
 * the end of the last page, since the memory is there; else it is buffered.
 */
#include "base/log.h"
#include "common/trace.h"
#include "ds/store/store_int.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include <urcu/compiler.h>

static void piece_io(struct loop_io *io, int res, uint32_t flags);

static void piece_end(struct ds_piece *pc, int err)
{
	struct ds_rw *rw = pc->pc_rw;
	uint32_t total = 0;

	/* Count the write while its range still shows it as under way (ds_obj_count). Also after an
	 * error: a part may have been written. */
	if (rw->rw_write && rw->rw_left == 1)
		ds_obj_wrote(rw->rw_obj);
	ds_range_unlock(rw->rw_obj, &pc->pc_range);
	if (err && !rw->rw_err)
		rw->rw_err = err;
	if (--rw->rw_left)
		return;
	for (unsigned i = 0; i < rw->rw_npieces; i++)
		total += rw->rw_piece[i].pc_done;
	if (!rw->rw_write && total > rw->rw_len)
		total = rw->rw_len;
	log_request = rw->rw_request;
	TRACE_TURN(io_done, rw->rw_obj->ob_key.co_ino, rw->rw_off,
		   (uint64_t)(rw->rw_err ? rw->rw_err : (int)total), rw->rw_write);
	rw->rw_done(rw, rw->rw_err ? rw->rw_err : (int)total);
}

static void piece_submit(struct ds_piece *pc)
{
	struct ds_rw *rw = pc->pc_rw;
	bool polled = pc->pc_direct && atomic_load(&rw->rw_obj->ob_vol->v_polled) &&
		      loop_poll_ring(loop_self());
	struct io_uring_sqe *sqe = polled ? loop_poll_sqe(loop_self()) : loop_sqe(loop_self());
	int fd = pc->pc_direct ? atomic_load(&rw->rw_obj->ob_dfd) : rw->rw_obj->ob_fd;
	uint8_t *mem = pc->pc_mem + pc->pc_done;
	uint32_t left = pc->pc_len - pc->pc_done;
	uint64_t off = pc->pc_off + pc->pc_done;
	int fixed = pool_fixed(loop_self(), mem);

	if (rw->rw_write && fixed >= 0)
		io_uring_prep_write_fixed(sqe, fd, mem, left, off, fixed);
	else if (rw->rw_write)
		io_uring_prep_write(sqe, fd, mem, left, off);
	else if (fixed >= 0)
		io_uring_prep_read_fixed(sqe, fd, mem, left, off, fixed);
	else
		io_uring_prep_read(sqe, fd, mem, left, off);
	loop_arm(sqe, &pc->pc_io);
	pc->pc_polled = polled;
	metric_add(pc->pc_direct ? ds_m_direct : ds_m_buffered, 1);
	if (fixed >= 0)
		metric_add(ds_m_fixed, 1);
	if (polled)
		metric_add(ds_m_polled, 1);
}

static void piece_granted(struct ds_range *r)
{
	piece_submit(caa_container_of(r, struct ds_piece, pc_range));
}

static void piece_io(struct loop_io *io, int res, uint32_t flags)
{
	struct ds_piece *pc = caa_container_of(io, struct ds_piece, pc_io);
	struct ds_rw *rw = pc->pc_rw;

	(void)flags;
	if (res == -EINTR || res == -EAGAIN) {
		piece_submit(pc);
		return;
	}
	if (res == -EOPNOTSUPP && pc->pc_direct &&
	    atomic_exchange(&rw->rw_obj->ob_vol->v_polled, false))
		log_warn("store: %s: the file system cannot poll; polling is off from now on",
			 rw->rw_obj->ob_vol->v_dir);
	if (res == -EOPNOTSUPP && pc->pc_polled) {
		piece_submit(pc);
		return;
	}
	if (res == -EINVAL && pc->pc_direct) {
		/* This piece is now buffered under a lock for direct I/O. At worst it meets the
		 * last direct I/O that is still under way. The kernel then reports an error to the
		 * next sync, and the clients send their data again. */
		if (atomic_exchange(&rw->rw_obj->ob_vol->v_direct, false))
			log_warn("store: the file system refused direct I/O; using buffered I/O "
				 "from now on");
		pc->pc_direct = false;
		piece_submit(pc);
		return;
	}
	ds_health_note(rw->rw_obj->ob_vol, rw->rw_write, res);
	if (res < 0 || (res == 0 && rw->rw_write)) {
		piece_end(pc, res ? res : -EIO);
		return;
	}
	pc->pc_done += (uint32_t)res;
	if (res == 0 || pc->pc_done >= pc->pc_len) {
		piece_end(pc, 0);
		return;
	}
	/* A direct transfer that stops inside a page stopped at the end of the file. A write cannot
	 * continue directly from there. */
	if (pc->pc_direct && pc->pc_done % DS_PAGE) {
		if (!rw->rw_write) {
			piece_end(pc, 0);
			return;
		}
		pc->pc_direct = false;
	}
	piece_submit(pc);
}

static void piece_add(struct ds_rw *rw, uint64_t off, uint32_t len, bool direct)
{
	struct ds_piece *pc = &rw->rw_piece[rw->rw_npieces++];

	pc->pc_io.lio_done = piece_io;
	pc->pc_rw = rw;
	pc->pc_off = off;
	pc->pc_len = len;
	pc->pc_done = 0;
	pc->pc_mem = rw->rw_mem + (off - rw->rw_off);
	pc->pc_direct = direct;
	pc->pc_range.rg_granted = piece_granted;
	pc->pc_range.rg_first = off / DS_PAGE;
	pc->pc_range.rg_last = (off + len - 1) / DS_PAGE;
	pc->pc_range.rg_from = off;
	pc->pc_range.rg_to = off + len;
	pc->pc_range.rg_write = rw->rw_write;
	pc->pc_range.rg_direct = direct;
	pc->pc_range.rg_alone = false;
}

/* Completions or messages end the pieces; this function never does. */
static void rw_start(struct ds_rw *rw)
{
	unsigned n = rw->rw_npieces;

	rw->rw_left = n;
	rw->rw_err = 0;
	rw->rw_request = log_request;
	TRACE_TURN(io_start, rw->rw_obj->ob_key.co_ino, rw->rw_off, rw->rw_len, rw->rw_write);
	for (unsigned i = 0; i < n; i++)
		if (ds_range_lock(rw->rw_obj, &rw->rw_piece[i].pc_range, rw->rw_hold))
			piece_submit(&rw->rw_piece[i]);
}

static bool mem_direct(const struct ds_rw *rw, const uint8_t *mem)
{
	struct ds_vol *v = rw->rw_obj->ob_vol;

	return (uintptr_t)mem % v->v_dio_mem == 0 && atomic_load(&v->v_direct) &&
	       ds_obj_direct_fd(rw->rw_obj) >= 0;
}

void ds_obj_read(struct ds_rw *rw)
{
	uint32_t whole = (rw->rw_len + DS_PAGE - 1) & ~(DS_PAGE - 1);

	rw->rw_write = false;
	rw->rw_npieces = 0;
	if (rw->rw_off % DS_PAGE == 0 && rw->rw_off <= (uint64_t)INT64_MAX - whole &&
	    mem_direct(rw, rw->rw_mem))
		piece_add(rw, rw->rw_off, whole, true);
	else
		piece_add(rw, rw->rw_off, rw->rw_len, false);
	rw_start(rw);
}

void ds_obj_write(struct ds_rw *rw)
{
	uint32_t head = (uint32_t)(-rw->rw_off % DS_PAGE), middle;

	rw->rw_write = true;
	rw->rw_npieces = 0;
	if (head > rw->rw_len)
		head = rw->rw_len;
	middle = (rw->rw_len - head) & ~(DS_PAGE - 1);
	if (!middle || !mem_direct(rw, rw->rw_mem + head)) {
		piece_add(rw, rw->rw_off, rw->rw_len, false);
		rw_start(rw);
		return;
	}
	if (head)
		piece_add(rw, rw->rw_off, head, false);
	piece_add(rw, rw->rw_off + head, middle, true);
	if (head + middle < rw->rw_len)
		piece_add(rw, rw->rw_off + head + middle, rw->rw_len - head - middle, false);
	rw_start(rw);
}

/* ---- sync ---- */

/*
 * Only one sync of an object runs at a time; syncs that arrive meanwhile share the next one. This
 * is not only thrift. The kernel reports a write-back error once, so of two fsyncs at once on one
 * descriptor, one may succeed although data is lost. Here a failed sync changes the verifier before
 * the next one begins.
 */
struct sync_run {
	struct loop_io sr_io;
	struct ds_obj *sr_obj;
	struct ds_sync *sr_list;
	uint64_t sr_unsynced; /* ob_unsynced when it began */
	bool sr_full, sr_dirs;
	int sr_step, sr_dirfd;
};
enum { SYNC_FILE, SYNC_FOLDER, SYNC_PARENT, SYNC_DONE };

static void sync_step(struct sync_run *sr);

static void sync_tell(struct loop_msg *m)
{
	struct ds_sync *sy = caa_container_of(m, struct ds_sync, sy_msg);

	log_request = sy->sy_request;
	TRACE_TURN(sync_done, sy->sy_obj->ob_key.co_ino, -sy->sy_err, 0, 0);
	sy->sy_done(sy, sy->sy_err);
}

/* Takes the waiting syncs as the next group. False: none waits. With ob_lock held. */
static bool sync_next(struct sync_run *sr)
{
	struct ds_obj *o = sr->sr_obj;

	sr->sr_list = o->ob_sync_wait;
	o->ob_sync_wait = NULL;
	sr->sr_full = false;
	for (struct ds_sync *sy = sr->sr_list; sy; sy = sy->sy_next)
		sr->sr_full |= sy->sy_full;
	sr->sr_dirs = o->ob_dir_unsynced;
	sr->sr_unsynced = atomic_load(&o->ob_unsynced);
	sr->sr_step = SYNC_FILE;
	if (sr->sr_list)
		metric_add(ds_m_syncs, 1);
	return o->ob_sync_running = sr->sr_list;
}

void ds_obj_sync_failed(struct ds_obj *o, int err)
{
	static _Atomic uint64_t last;

	if (log_due(&last))
		log_error("store: cannot sync object %016" PRIx64 ": %s", o->ob_key.co_ino,
			  strerror(-err));
	metric_add(ds_m_sync_failures, 1);
	ds_health_note(o->ob_vol, true, err);
	ds_verifier_change(o->ob_store);
}

static void sync_end(struct sync_run *sr, int err)
{
	struct ds_obj *o = sr->sr_obj;
	struct ds_sync *sy = sr->sr_list, *next;
	bool more;

	if (err)
		ds_obj_sync_failed(o, err);
	else
		atomic_compare_exchange_strong(&o->ob_unsynced, &sr->sr_unsynced, 0);
	pthread_mutex_lock(&o->ob_lock);
	if (!err && sr->sr_dirs)
		o->ob_dir_unsynced = false;
	more = sync_next(sr);
	pthread_mutex_unlock(&o->ob_lock);
	/* Each of them holds a reference to o. Do not touch o after the last message: the next
	 * group, if any, holds its own references. */
	for (; sy; sy = next) {
		next = sy->sy_next;
		sy->sy_err = err;
		loop_post(sy->sy_loop, &sy->sy_msg);
	}
	if (more)
		sync_step(sr);
	else
		free(sr);
}

static void sync_io(struct loop_io *io, int res, uint32_t flags)
{
	struct sync_run *sr = caa_container_of(io, struct sync_run, sr_io);

	(void)flags;
	if (sr->sr_dirfd >= 0)
		close(sr->sr_dirfd);
	sr->sr_dirfd = -1;
	if (res == -EINTR || res == -EAGAIN) {
		sync_step(sr);
		return;
	}
	if (res < 0) {
		sync_end(sr, res);
		return;
	}
	sr->sr_step++;
	sync_step(sr);
}

/* Runs the next step: sync the file, then the folder with its name, then the folder's parent. */
static void sync_step(struct sync_run *sr)
{
	struct ds_obj *o = sr->sr_obj;
	uint16_t folder = objname_folder(o->ob_key.co_ino);
	struct io_uring_sqe *sqe;
	int fd = o->ob_fd;

	if (sr->sr_step == SYNC_FOLDER && !sr->sr_dirs)
		sr->sr_step = SYNC_DONE;
	if (sr->sr_step == SYNC_PARENT && ds_dir_is_durable(o->ob_vol, folder))
		sr->sr_step = SYNC_DONE;
	if (sr->sr_step == SYNC_DONE) {
		if (sr->sr_dirs)
			ds_dir_set_durable(o->ob_vol, folder);
		sync_end(sr, 0);
		return;
	}
	if (sr->sr_step != SYNC_FILE) {
		fd = sr->sr_dirfd = ds_dir_open(o->ob_vol, folder, sr->sr_step == SYNC_PARENT);
		if (fd < 0) {
			sync_end(sr, fd);
			return;
		}
	}
	sqe = loop_sqe(loop_self());
	io_uring_prep_fsync(sqe, fd,
			    sr->sr_step == SYNC_FILE && !sr->sr_full ? IORING_FSYNC_DATASYNC : 0);
	loop_arm(sqe, &sr->sr_io);
}

void ds_obj_sync(struct ds_sync *sy)
{
	struct ds_obj *o = sy->sy_obj;
	struct sync_run *sr = NULL;
	bool start;

	sy->sy_request = log_request;
	TRACE_TURN(sync_start, o->ob_key.co_ino, sy->sy_full, 0, 0);
	sy->sy_loop = loop_self();
	sy->sy_msg.m_run = sync_tell;
	pthread_mutex_lock(&o->ob_lock);
	start = !o->ob_sync_running;
	if (start) {
		sr = calloc(1, sizeof(*sr));
		if (!sr) {
			pthread_mutex_unlock(&o->ob_lock);
			sy->sy_err = -ENOMEM;
			loop_post(sy->sy_loop, &sy->sy_msg);
			return;
		}
		sr->sr_obj = o;
		sr->sr_io.lio_done = sync_io;
		sr->sr_dirfd = -1;
	}
	sy->sy_next = o->ob_sync_wait;
	o->ob_sync_wait = sy;
	if (start)
		sync_next(sr);
	pthread_mutex_unlock(&o->ob_lock);
	if (start)
		sync_step(sr);
}
